"""The schemas of the custom resources."""
