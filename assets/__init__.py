"""What Dagster materializes: functions of a group or of a pipeline; each body calls one verb of rota."""
