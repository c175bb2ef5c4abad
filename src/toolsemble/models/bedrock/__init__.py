"""The models of Amazon Bedrock."""
