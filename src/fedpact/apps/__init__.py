"""Programs that other systems start: the two halves of a Flower app."""
