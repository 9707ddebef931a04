"""What a trained model has learned: ``vit`` of image models, ``lm`` of language models."""
