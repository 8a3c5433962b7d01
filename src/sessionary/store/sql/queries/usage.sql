-- The ledger of model calls, and sums of it.

-- name: insert_usage
INSERT INTO usage (
    profile, call_id, session_no, turn_id, at, model, provider, base_url, billing_mode, task, input_tokens,
    output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_microusd, cost_status,
    price_source, price_version
) VALUES (
    :profile, :call_id, :session_no, :turn_id, :at, :model, :provider, :base_url, :billing_mode, :task, :input_tokens,
    :output_tokens, :cache_read_tokens, :cache_write_tokens, :reasoning_tokens, :cost_microusd, :cost_status,
    :price_source, :price_version
) ON CONFLICT (profile, call_id) DO NOTHING;

-- name: largest_sum
-- No sum of tokens or cost is larger: the largest whole number that every reader of JSON knows exactly.
9007199254740991

-- name: add_usage
UPDATE sessions SET calls = calls + :calls, unknown_cost_calls = unknown_cost_calls + :unknown_cost_calls,
    estimated_calls = estimated_calls + :estimated_calls,
    input_tokens = CASE WHEN input_tokens > {{largest_sum}} - :input_tokens THEN {{largest_sum}}
        ELSE input_tokens + :input_tokens END,
    output_tokens = CASE WHEN output_tokens > {{largest_sum}} - :output_tokens THEN {{largest_sum}}
        ELSE output_tokens + :output_tokens END,
    cache_read_tokens = CASE WHEN cache_read_tokens > {{largest_sum}} - :cache_read_tokens THEN {{largest_sum}}
        ELSE cache_read_tokens + :cache_read_tokens END,
    cache_write_tokens = CASE WHEN cache_write_tokens > {{largest_sum}} - :cache_write_tokens THEN {{largest_sum}}
        ELSE cache_write_tokens + :cache_write_tokens END,
    reasoning_tokens = CASE WHEN reasoning_tokens > {{largest_sum}} - :reasoning_tokens THEN {{largest_sum}}
        ELSE reasoning_tokens + :reasoning_tokens END,
    cost_microusd = CASE WHEN cost_microusd > {{largest_sum}} - :cost_microusd THEN {{largest_sum}}
        ELSE cost_microusd + :cost_microusd END,
    model = COALESCE(model, :model),
    context_tokens = CASE WHEN :context_tokens > 0 THEN :context_tokens ELSE context_tokens END,
    context_seq = CASE WHEN :context_tokens > 0 THEN last_seq ELSE context_seq END
WHERE no = :no;

-- name: set_usage
UPDATE sessions SET calls = :calls, unknown_cost_calls = :unknown_cost_calls, estimated_calls = :estimated_calls,
    input_tokens = :input_tokens, output_tokens = :output_tokens, cache_read_tokens = :cache_read_tokens,
    cache_write_tokens = :cache_write_tokens, reasoning_tokens = :reasoning_tokens, cost_microusd = :cost_microusd
WHERE no = :no;

-- name: delete_call
DELETE FROM usage WHERE profile = :profile AND call_id = :call_id;

-- name: usage_of_session
SELECT NULL, {{total_columns}} FROM usage u WHERE u.session_no = :no;

-- name: usage_of_turn
SELECT NULL, {{total_columns}} FROM usage u WHERE u.session_no = :no AND u.turn_id = :turn_id;

-- name: usage_rows_of_session
SELECT call_id, turn_id, at, model, provider, base_url, billing_mode, task, input_tokens, output_tokens,
    cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_microusd, cost_status, price_source, price_version
FROM usage WHERE session_no = :no ORDER BY at, call_id;

-- name: usage_by_day
-- Grouped by UTC day, as its number since 1970.
SELECT u.at / 86400000000, {{total_columns}} FROM usage u
WHERE u.profile = :profile AND u.at >= :since AND u.at < :until GROUP BY u.at / 86400000000 ORDER BY 1 NULLS FIRST;

-- name: usage_by_model
SELECT u.model, {{total_columns}} FROM usage u
WHERE u.profile = :profile AND u.at >= :since AND u.at < :until GROUP BY u.model ORDER BY 1 NULLS FIRST;

-- name: usage_by_provider
SELECT u.provider, {{total_columns}} FROM usage u
WHERE u.profile = :profile AND u.at >= :since AND u.at < :until GROUP BY u.provider ORDER BY 1 NULLS FIRST;

-- name: usage_by_source
SELECT s.platform, {{total_columns}} FROM usage u JOIN sessions s ON s.no = u.session_no
WHERE u.profile = :profile AND u.at >= :since AND u.at < :until GROUP BY s.platform ORDER BY 1 NULLS FIRST;

-- name: usage_by_project
SELECT p.name, {{total_columns}} FROM usage u JOIN sessions s ON s.no = u.session_no
LEFT JOIN projects p ON p.no = s.project_no
WHERE u.profile = :profile AND u.at >= :since AND u.at < :until GROUP BY p.name ORDER BY 1 NULLS FIRST;

-- name: usage_by_session
SELECT s.id, {{total_columns}} FROM usage u JOIN sessions s ON s.no = u.session_no
WHERE u.profile = :profile AND u.at >= :since AND u.at < :until GROUP BY s.id ORDER BY 1 NULLS FIRST;
