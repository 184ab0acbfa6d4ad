-- The latest time that was seen, for a process that starts with a wrong clock; 0 before the first write. While the clock is
-- far ahead of it: what the clock showed when that was first noticed.
CREATE TABLE IF NOT EXISTS onceward_clock
    (one INTEGER PRIMARY KEY CHECK (one = 1), seen INTEGER NOT NULL, distrusted INTEGER) STRICT;
INSERT OR IGNORE INTO onceward_clock VALUES (1, 0, NULL);
