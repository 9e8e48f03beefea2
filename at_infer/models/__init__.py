"""What a model file is and knows about itself, and how its outputs become scores."""
