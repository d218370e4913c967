"""What people read: the leaderboard and the lines of a run. Imports neither torch nor ray."""
