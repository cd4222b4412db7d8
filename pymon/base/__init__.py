"""What everything else may use: errors, units, the clock. Standard library only."""
