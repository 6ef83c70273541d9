"""What nodes and operators are: the small facts that everything else asks for, as data and as short functions."""
