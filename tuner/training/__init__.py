"""Train one configuration: models, the optimizer step, evaluation, checkpoints and the loop."""
