-- Every statement of the SQLite store by name. Values are bound, never written into the text.

-- name: create_run
INSERT INTO runs (
    run_id, request_id, version, epoch, phase, is_terminal, is_claimable, task, task_version, goal, updated_at, created_at
) VALUES (
    :run_id, nullif(:request_id, ''), :count, :epoch, :phase, :is_terminal, :is_claimable, :task, :task_version, :goal, :updated_at,
    :now
)
RETURNING key;

-- name: find_state
-- What decides about a batch: the run, and where the batch's first event is if it is there already. A join would be planned anew for each value.
SELECT key, version, epoch, is_terminal, owner, is_released, expires_at,
    (SELECT position FROM events WHERE run = key AND event_id = :event_id)
FROM runs WHERE run_id = :run_id;

-- name: advance
-- The compare-and-set of every batch: no row changes when version or epoch are not what was decided upon.
UPDATE runs
SET version = version + :count, phase = :phase, is_terminal = :is_terminal, is_claimable = :is_claimable,
    task = :task, task_version = :task_version, goal = :goal, updated_at = :updated_at
WHERE key = :key AND version = :version AND epoch = :epoch AND is_terminal = 0;

-- name: take_lease
UPDATE runs SET epoch = epoch + 1, owner = :owner, expires_at = :now + :seconds, is_released = 0 WHERE key = :key AND epoch = :epoch;

-- name: insert_event
INSERT INTO events (run, position, event_id, type, fingerprint, body)
VALUES (:key, :offset, :event_id, :type, :fingerprint, :body);

-- name: renew
UPDATE runs SET expires_at = :now + :seconds
WHERE run_id = :run_id AND epoch = :epoch AND owner <> '' AND is_released = 0;

-- name: release
UPDATE runs SET is_released = 1
WHERE run_id = :run_id AND epoch = :epoch AND owner <> '' AND is_released = 0;

-- name: find_event
SELECT position, fingerprint FROM events
WHERE run = (SELECT key FROM runs WHERE run_id = :run_id) AND event_id = :event_id;

-- name: find_run
SELECT key, version, is_terminal, ifnull(request_id, '') FROM runs WHERE run_id = :run_id;

-- name: find_request
SELECT run_id FROM runs WHERE request_id = :request_id;

-- name: read_events
SELECT body FROM events WHERE run = :key AND position >= :offset ORDER BY position LIMIT :limit;

-- name: get_run
SELECT run_id, ifnull(request_id, ''), version,
    phase, is_terminal, is_claimable, task, task_version, goal, updated_at,
    owner, epoch, expires_at, is_released, created_at
FROM runs WHERE run_id = :run_id;

-- name: list_runs
-- A run's id is made of ASCII letters, digits, '-' and '_', all of which sort before '~'.
SELECT run_id, ifnull(request_id, ''), version,
    phase, is_terminal, is_claimable, task, task_version, goal, updated_at,
    owner, epoch, expires_at, is_released, created_at
FROM runs
WHERE run_id BETWEEN :prefix AND :prefix || '~'
    AND (:phases = '[]' OR phase IN (SELECT value FROM json_each(:phases)))
    AND (:tasks = '[]' OR task IN (SELECT value FROM json_each(:tasks)))
ORDER BY updated_at DESC, run_id DESC LIMIT :limit;

-- name: list_claimable
SELECT run_id, ifnull(request_id, ''), version,
    phase, is_terminal, is_claimable, task, task_version, goal, updated_at,
    owner, epoch, expires_at, is_released, created_at
FROM runs
WHERE is_claimable = 1 AND is_terminal = 0
    AND (owner = '' OR is_released = 1 OR expires_at <= :now)
    AND run_id BETWEEN :prefix AND :prefix || '~'
    AND (:phases = '[]' OR phase IN (SELECT value FROM json_each(:phases)))
    AND (:tasks = '[]' OR task IN (SELECT value FROM json_each(:tasks)))
ORDER BY updated_at DESC, run_id DESC LIMIT :limit;

-- name: insert_refusal
INSERT INTO refusals (run, event_id, type, code, detail, actor, at)
SELECT key, :event_id, :type, :code, :detail, :actor, :at FROM runs WHERE run_id = :run_id;

-- name: list_refusals
SELECT event_id, type, code, detail, actor, at FROM refusals WHERE run = :key ORDER BY position;

-- name: count_all
SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM events);

-- name: find_gaps
-- A log has as many events as its version says, from offset 0 on.
SELECT run_id FROM runs
WHERE version <> (SELECT count(*) FROM events WHERE run = key)
    OR version - 1 <> (SELECT max(position) FROM events WHERE run = key)
ORDER BY run_id LIMIT 10;
