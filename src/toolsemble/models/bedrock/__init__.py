"""Models of Amazon Bedrock."""
