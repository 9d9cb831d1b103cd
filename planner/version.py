__version__ = "0.1.0"

SCHEMA = 2  # of every JSON object that is printed: changes when a field changes its meaning or goes away
