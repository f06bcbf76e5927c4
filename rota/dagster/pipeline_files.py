"""Loads the extras of a pipeline file: its own assets, checks, jobs, schedules, sensors and resources.

Invariant: each of them at the top level of the file is loaded. The key of a resource is the name of its variable.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import dagster as dg

RESOURCE = (dg.ConfigurableResource, dg.ConfigurableIOManagerFactory, dg.ResourceDefinition)


def load_file(module: ModuleType) -> dg.Definitions:
    """Return the extras of the file, under their own keys. Raises any error of Dagster."""
    resources = {name: value for name, value in vars(module).items() if isinstance(value, RESOURCE)}
    with warnings.catch_warnings():  # Dagster warns that the function is a preview
        warnings.simplefilter("ignore")
        return dg.load_definitions_from_module(module, resources=resources)


def list_keys(assets: Iterable[Any]) -> Iterator[dg.AssetKey]:
    """Yield the keys of the assets."""
    for asset in assets:
        yield from asset.keys if isinstance(asset, dg.AssetsDefinition) else [asset.key]


def select_automated(defs: dg.Definitions) -> dg.AssetSelection | None:
    """Return the assets and checks that have an automation condition; None if none has."""
    several = [
        one for one in (*(defs.assets or ()), *(defs.asset_checks or ())) if isinstance(one, dg.AssetsDefinition)
    ]
    alone = [one for one in defs.assets or () if isinstance(one, dg.AssetSpec)]
    specs = [*alone, *(spec for one in several for spec in one.specs)]
    checks = {spec.key for one in several for spec in one.check_specs if spec.automation_condition}
    assets = sorted({spec.key for spec in specs if spec.automation_condition})
    if not checks:
        return dg.AssetSelection.assets(*assets) if assets else None
    named = dg.AssetSelection.checks(*sorted(checks))
    return dg.AssetSelection.assets(*assets) | named if assets else named


def rename(
    own: dg.Definitions,
    keys: Mapping[dg.AssetKey, dg.AssetKey],
    sets: Mapping[str, dg.DynamicPartitionsDefinition],
) -> dg.Definitions:
    """Return the definitions with new keys in assets, their dependencies and their checks, and with these partition sets.

    Names in the body of an asset or in the selection of a job do not change. An object that two files import stays one.
    """
    return dg.Definitions(
        assets=[_rename(one, keys, sets) for one in {id(one): one for one in own.assets or ()}.values()],
        asset_checks=[_rename(one, keys, sets) for one in {id(one): one for one in own.asset_checks or ()}.values()],
        jobs=own.jobs,
        schedules=own.schedules,
        sensors=own.sensors,
        resources=own.resources,
    )


def _rename(
    one: Any, keys: Mapping[dg.AssetKey, dg.AssetKey], sets: Mapping[str, dg.DynamicPartitionsDefinition]
) -> Any:
    def move(spec: dg.AssetSpec) -> dg.AssetSpec:
        """Return the spec with this deployment's partition set of the same name."""
        of = spec.partitions_def
        here = sets.get(str(of.name)) if isinstance(of, dg.DynamicPartitionsDefinition) else None
        return spec.replace_attributes(partitions_def=here) if here else spec

    if isinstance(one, dg.AssetsDefinition):
        renamed = one.with_attributes(asset_key_replacements=keys)  # of checks, too: an AssetsDefinition
        if isinstance(one, dg.AssetChecksDefinition):
            return dg.AssetChecksDefinition(**renamed.get_attributes_dict())
        return renamed.map_asset_specs(move)
    if isinstance(one, dg.SourceAsset):
        return one.with_attributes(key=keys.get(one.key, one.key))
    deps = [dg.AssetDep(keys.get(d.asset_key, d.asset_key), partition_mapping=d.partition_mapping) for d in one.deps]
    return move(one.replace_attributes(key=keys.get(one.key, one.key), deps=deps))
