"""What the plan of a workload expected where a program failed."""
