"""Working one goal through a plan: planners and the values they speak."""
