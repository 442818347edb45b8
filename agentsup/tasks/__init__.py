"""Background work: tasks, their runs and schedules."""
