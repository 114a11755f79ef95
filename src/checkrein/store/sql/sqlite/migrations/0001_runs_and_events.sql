-- Runs with their heads and leases, their logs, and what was refused.

CREATE TABLE runs (
    key INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    -- NULL for none: the same id names the same run for ever.
    request_id TEXT UNIQUE,
    -- The log's end.
    version INTEGER NOT NULL,
    -- The lease. Nobody ever held it while owner is ''.
    epoch INTEGER NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT '',
    expires_at REAL NOT NULL DEFAULT 0,
    is_released INTEGER NOT NULL DEFAULT 0,
    -- The head: what lists show and workers look for.
    phase TEXT NOT NULL,
    is_terminal INTEGER NOT NULL,
    is_claimable INTEGER NOT NULL,
    task TEXT NOT NULL,
    task_version INTEGER NOT NULL,
    updated_at REAL NOT NULL,
    created_at REAL NOT NULL,
    goal TEXT NOT NULL
) STRICT;

-- Workers ask for claimable runs all the time, and most runs of a store ended long ago.
CREATE INDEX runs_claimable ON runs (is_claimable) WHERE is_claimable = 1;

-- Rows lie in the order of all commits, so a group of commits of many runs dirties few pages.
CREATE TABLE events (
    run INTEGER NOT NULL,
    position INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run, position)
) STRICT;

CREATE UNIQUE INDEX events_by_id ON events (run, event_id);

CREATE TABLE refusals (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    actor TEXT NOT NULL,
    at REAL NOT NULL
) STRICT;

CREATE INDEX refusals_by_run ON refusals (run, position);
