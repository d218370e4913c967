"""What people read: the leaderboard and the lines of a running search. Never imports torch or ray."""
