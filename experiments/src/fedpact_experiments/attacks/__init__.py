"""What a coordinator that does not keep to the protocol gets out of sites with their policies."""
