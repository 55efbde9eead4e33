"""Linear models and associations on shares: what all parties compute together, and its parts."""
