"""`fedpact bench`: every number that is printed was measured in that run. One file a command."""
