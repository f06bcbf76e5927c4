"""What a person does to a pipeline: a file for each verb."""
