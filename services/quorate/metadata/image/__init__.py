"""The image: the state that the records of the metadata log describe."""
