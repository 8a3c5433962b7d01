-- Every table, a page at a time by its key. Made from the schema by tools/copy_sql.py.

-- name: copy_key_blobs
hash TEXT

-- name: copy_columns_blobs
hash, size, data

-- name: copy_page_blobs
SELECT {{copy_columns_blobs}} FROM blobs WHERE hash > :after_hash ORDER BY hash LIMIT :limit;

-- name: copy_row_blobs
INSERT INTO blobs ({{copy_columns_blobs}}) VALUES (:hash, :size, :data);

-- name: copy_key_budget_warnings
profile TEXT, scope TEXT, period TEXT, threshold INTEGER

-- name: copy_columns_budget_warnings
profile, scope, period, threshold, warned_at

-- name: copy_page_budget_warnings
SELECT {{copy_columns_budget_warnings}} FROM budget_warnings WHERE (profile, scope, period, threshold) > (:after_profile, :after_scope, :after_period, :after_threshold) ORDER BY profile, scope, period, threshold LIMIT :limit;

-- name: copy_row_budget_warnings
INSERT INTO budget_warnings ({{copy_columns_budget_warnings}}) VALUES (:profile, :scope, :period, :threshold, :warned_at);

-- name: copy_key_entries
entry_no INTEGER

-- name: copy_columns_entries
entry_no, kind, role, at, turn_id, body

-- name: copy_page_entries
SELECT {{copy_columns_entries}} FROM entries WHERE entry_no > :after_entry_no ORDER BY entry_no LIMIT :limit;

-- name: copy_row_entries
INSERT INTO entries ({{copy_columns_entries}}) VALUES (:entry_no, :kind, :role, :at, :turn_id, :body);

-- name: copy_key_erasures
id TEXT

-- name: copy_columns_erasures
id, profile, at, receipt

-- name: copy_page_erasures
SELECT {{copy_columns_erasures}} FROM erasures WHERE id > :after_id ORDER BY id LIMIT :limit;

-- name: copy_row_erasures
INSERT INTO erasures ({{copy_columns_erasures}}) VALUES (:id, :profile, :at, :receipt);

-- name: copy_key_feed
position INTEGER

-- name: copy_columns_feed
position, session_no, seq, what

-- name: copy_page_feed
SELECT {{copy_columns_feed}} FROM feed WHERE position > :after_position ORDER BY position LIMIT :limit;

-- name: copy_row_feed
INSERT INTO feed ({{copy_columns_feed}}) VALUES (:position, :session_no, :seq, :what);

-- name: copy_key_homes
profile TEXT, platform TEXT

-- name: copy_columns_homes
profile, platform, chat_id, thread_id, name, set_at

-- name: copy_page_homes
SELECT {{copy_columns_homes}} FROM homes WHERE (profile, platform) > (:after_profile, :after_platform) ORDER BY profile, platform LIMIT :limit;

-- name: copy_row_homes
INSERT INTO homes ({{copy_columns_homes}}) VALUES (:profile, :platform, :chat_id, :thread_id, :name, :set_at);

-- name: copy_key_imports
profile TEXT, tool TEXT, name TEXT

-- name: copy_columns_imports
profile, tool, name, stamp, place, note, read_at

-- name: copy_page_imports
SELECT {{copy_columns_imports}} FROM imports WHERE (profile, tool, name) > (:after_profile, :after_tool, :after_name) ORDER BY profile, tool, name LIMIT :limit;

-- name: copy_row_imports
INSERT INTO imports ({{copy_columns_imports}}) VALUES (:profile, :tool, :name, :stamp, :place, :note, :read_at);

-- name: copy_key_login_guards
profile TEXT

-- name: copy_columns_login_guards
profile, wrong, locked_until

-- name: copy_page_login_guards
SELECT {{copy_columns_login_guards}} FROM login_guards WHERE profile > :after_profile ORDER BY profile LIMIT :limit;

-- name: copy_row_login_guards
INSERT INTO login_guards ({{copy_columns_login_guards}}) VALUES (:profile, :wrong, :locked_until);

-- name: copy_key_login_links
hash TEXT

-- name: copy_columns_login_links
hash, profile, expires_at

-- name: copy_page_login_links
SELECT {{copy_columns_login_links}} FROM login_links WHERE hash > :after_hash ORDER BY hash LIMIT :limit;

-- name: copy_row_login_links
INSERT INTO login_links ({{copy_columns_login_links}}) VALUES (:hash, :profile, :expires_at);

-- name: copy_key_logins
id TEXT

-- name: copy_columns_logins
id, profile, hash, began_at, expires_at, ended_at

-- name: copy_page_logins
SELECT {{copy_columns_logins}} FROM logins WHERE id > :after_id ORDER BY id LIMIT :limit;

-- name: copy_row_logins
INSERT INTO logins ({{copy_columns_logins}}) VALUES (:id, :profile, :hash, :began_at, :expires_at, :ended_at);

-- name: copy_key_memory_items
no INTEGER

-- name: copy_columns_memory_items
no, profile, namespace, key, value, created_at, updated_at, ttl_micros, expires_at

-- name: copy_page_memory_items
SELECT {{copy_columns_memory_items}} FROM memory_items WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_memory_items
INSERT INTO memory_items ({{copy_columns_memory_items}}) VALUES (:no, :profile, :namespace, :key, :value, :created_at, :updated_at, :ttl_micros, :expires_at);

-- name: copy_key_next_sessions
profile TEXT, key TEXT

-- name: copy_columns_next_sessions
profile, key, title, chosen

-- name: copy_page_next_sessions
SELECT {{copy_columns_next_sessions}} FROM next_sessions WHERE (profile, key) > (:after_profile, :after_key) ORDER BY profile, key LIMIT :limit;

-- name: copy_row_next_sessions
INSERT INTO next_sessions ({{copy_columns_next_sessions}}) VALUES (:profile, :key, :title, :chosen);

-- name: copy_key_pairing_guards
profile TEXT

-- name: copy_columns_pairing_guards
profile, wrong_codes, locked_until

-- name: copy_page_pairing_guards
SELECT {{copy_columns_pairing_guards}} FROM pairing_guards WHERE profile > :after_profile ORDER BY profile LIMIT :limit;

-- name: copy_row_pairing_guards
INSERT INTO pairing_guards ({{copy_columns_pairing_guards}}) VALUES (:profile, :wrong_codes, :locked_until);

-- name: copy_key_pairings
profile TEXT, platform TEXT, person_id TEXT

-- name: copy_columns_pairings
profile, platform, person_id, name, code_hash, asked_at, expires_at

-- name: copy_page_pairings
SELECT {{copy_columns_pairings}} FROM pairings WHERE (profile, platform, person_id) > (:after_profile, :after_platform, :after_person_id) ORDER BY profile, platform, person_id LIMIT :limit;

-- name: copy_row_pairings
INSERT INTO pairings ({{copy_columns_pairings}}) VALUES (:profile, :platform, :person_id, :name, :code_hash, :asked_at, :expires_at);

-- name: copy_key_passwords
profile TEXT

-- name: copy_columns_passwords
profile, hash, set_at

-- name: copy_page_passwords
SELECT {{copy_columns_passwords}} FROM passwords WHERE profile > :after_profile ORDER BY profile LIMIT :limit;

-- name: copy_row_passwords
INSERT INTO passwords ({{copy_columns_passwords}}) VALUES (:profile, :hash, :set_at);

-- name: copy_key_permits
profile TEXT, platform TEXT, person_id TEXT

-- name: copy_columns_permits
profile, platform, person_id, name, given_at, given_by

-- name: copy_page_permits
SELECT {{copy_columns_permits}} FROM permits WHERE (profile, platform, person_id) > (:after_profile, :after_platform, :after_person_id) ORDER BY profile, platform, person_id LIMIT :limit;

-- name: copy_row_permits
INSERT INTO permits ({{copy_columns_permits}}) VALUES (:profile, :platform, :person_id, :name, :given_at, :given_by);

-- name: copy_key_projects
no INTEGER

-- name: copy_columns_projects
no, id, profile, name, colour, created_at

-- name: copy_page_projects
SELECT {{copy_columns_projects}} FROM projects WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_projects
INSERT INTO projects ({{copy_columns_projects}}) VALUES (:no, :id, :profile, :name, :colour, :created_at);

-- name: copy_key_proxy_exchanges
id TEXT

-- name: copy_columns_proxy_exchanges
id, profile, state, holder, expires_at, began_at, done_at, person_id, facts, request, response

-- name: copy_page_proxy_exchanges
SELECT {{copy_columns_proxy_exchanges}} FROM proxy_exchanges WHERE id > :after_id ORDER BY id LIMIT :limit;

-- name: copy_row_proxy_exchanges
INSERT INTO proxy_exchanges ({{copy_columns_proxy_exchanges}}) VALUES (:id, :profile, :state, :holder, :expires_at, :began_at, :done_at, :person_id, :facts, :request, :response);

-- name: copy_key_push_subscriptions
id TEXT

-- name: copy_columns_push_subscriptions
id, profile, endpoint, p256dh, auth, label, language, origin, login_id, created_at, succeeded_at, failures, problem

-- name: copy_page_push_subscriptions
SELECT {{copy_columns_push_subscriptions}} FROM push_subscriptions WHERE id > :after_id ORDER BY id LIMIT :limit;

-- name: copy_row_push_subscriptions
INSERT INTO push_subscriptions ({{copy_columns_push_subscriptions}}) VALUES (:id, :profile, :endpoint, :p256dh, :auth, :label, :language, :origin, :login_id, :created_at, :succeeded_at, :failures, :problem);

-- name: copy_key_receipts
profile TEXT, idem TEXT

-- name: copy_columns_receipts
profile, idem, session_no, seq

-- name: copy_page_receipts
SELECT {{copy_columns_receipts}} FROM receipts WHERE (profile, idem) > (:after_profile, :after_idem) ORDER BY profile, idem LIMIT :limit;

-- name: copy_row_receipts
INSERT INTO receipts ({{copy_columns_receipts}}) VALUES (:profile, :idem, :session_no, :seq);

-- name: copy_key_requests
profile TEXT, idem TEXT

-- name: copy_columns_requests
profile, idem, fingerprint, status, body, session_id, answered_at

-- name: copy_page_requests
SELECT {{copy_columns_requests}} FROM requests WHERE (profile, idem) > (:after_profile, :after_idem) ORDER BY profile, idem LIMIT :limit;

-- name: copy_row_requests
INSERT INTO requests ({{copy_columns_requests}}) VALUES (:profile, :idem, :fingerprint, :status, :body, :session_id, :answered_at);

-- name: copy_key_reservations
turn_id TEXT, scope TEXT

-- name: copy_columns_reservations
turn_id, profile, scope, tokens, cost_microusd

-- name: copy_page_reservations
SELECT {{copy_columns_reservations}} FROM reservations WHERE (turn_id, scope) > (:after_turn_id, :after_scope) ORDER BY turn_id, scope LIMIT :limit;

-- name: copy_row_reservations
INSERT INTO reservations ({{copy_columns_reservations}}) VALUES (:turn_id, :profile, :scope, :tokens, :cost_microusd);

-- name: copy_key_rewriting
entry_no INTEGER

-- name: copy_columns_rewriting
entry_no

-- name: copy_page_rewriting
SELECT {{copy_columns_rewriting}} FROM rewriting WHERE entry_no > :after_entry_no ORDER BY entry_no LIMIT :limit;

-- name: copy_row_rewriting
INSERT INTO rewriting ({{copy_columns_rewriting}}) VALUES (:entry_no);

-- name: copy_key_schedules
no INTEGER

-- name: copy_columns_schedules
no, id, profile, name, timing, zone, prompt, agent, deliver_to, origin, grace_seconds, paused, created_at, removed_at, next_at, by_program

-- name: copy_page_schedules
SELECT {{copy_columns_schedules}} FROM schedules WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_schedules
INSERT INTO schedules ({{copy_columns_schedules}}) VALUES (:no, :id, :profile, :name, :timing, :zone, :prompt, :agent, :deliver_to, :origin, :grace_seconds, :paused, :created_at, :removed_at, :next_at, :by_program);

-- name: copy_key_spending
profile TEXT, scope TEXT, period TEXT

-- name: copy_columns_spending
profile, scope, period, tokens, cost_microusd

-- name: copy_page_spending
SELECT {{copy_columns_spending}} FROM spending WHERE (profile, scope, period) > (:after_profile, :after_scope, :after_period) ORDER BY profile, scope, period LIMIT :limit;

-- name: copy_row_spending
INSERT INTO spending ({{copy_columns_spending}}) VALUES (:profile, :scope, :period, :tokens, :cost_microusd);

-- name: copy_key_tokens
id TEXT

-- name: copy_columns_tokens
id, profile, name, hash, scope, created_at, revoked_at

-- name: copy_page_tokens
SELECT {{copy_columns_tokens}} FROM tokens WHERE id > :after_id ORDER BY id LIMIT :limit;

-- name: copy_row_tokens
INSERT INTO tokens ({{copy_columns_tokens}}) VALUES (:id, :profile, :name, :hash, :scope, :created_at, :revoked_at);

-- name: copy_key_blob_refs
hash TEXT, entry_no INTEGER

-- name: copy_columns_blob_refs
hash, entry_no

-- name: copy_page_blob_refs
SELECT {{copy_columns_blob_refs}} FROM blob_refs WHERE (hash, entry_no) > (:after_hash, :after_entry_no) ORDER BY hash, entry_no LIMIT :limit;

-- name: copy_row_blob_refs
INSERT INTO blob_refs ({{copy_columns_blob_refs}}) VALUES (:hash, :entry_no);

-- name: copy_key_files
id TEXT

-- name: copy_columns_files
id, profile, hash, name, media_type, size, purpose, token_id, created_at, expires_at

-- name: copy_page_files
SELECT {{copy_columns_files}} FROM files WHERE id > :after_id ORDER BY id LIMIT :limit;

-- name: copy_row_files
INSERT INTO files ({{copy_columns_files}}) VALUES (:id, :profile, :hash, :name, :media_type, :size, :purpose, :token_id, :created_at, :expires_at);

-- name: copy_key_memory_vectors
item_no INTEGER, position INTEGER

-- name: copy_columns_memory_vectors
item_no, position, vector

-- name: copy_page_memory_vectors
SELECT {{copy_columns_memory_vectors}} FROM memory_vectors WHERE (item_no, position) > (:after_item_no, :after_position) ORDER BY item_no, position LIMIT :limit;

-- name: copy_row_memory_vectors
INSERT INTO memory_vectors ({{copy_columns_memory_vectors}}) VALUES (:item_no, :position, :vector);

-- name: copy_key_sessions
no INTEGER

-- name: copy_columns_sessions
no, id, profile, key, source, platform, chat_type, chat_id, person_id, kind, folder, title, title_by, model, settings, prompt_hash, workspace, project_no, pinned, archived, read_only, labels, extra, read_through, parent_no, lineage, base_seq, began_at, ended_at, end_reason, trashed_at, purged_at, finalized_at, finalize_tries, finalize_error, last_seq, last_reply_seq, last_active_at, preview, message_count, tool_call_count, compacted_seq, calls, unknown_cost_calls, estimated_calls, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_microusd, running_turn, epoch, context_tokens, context_seq

-- name: copy_page_sessions
SELECT {{copy_columns_sessions}} FROM sessions WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_sessions
INSERT INTO sessions ({{copy_columns_sessions}}) VALUES (:no, :id, :profile, :key, :source, :platform, :chat_type, :chat_id, :person_id, :kind, :folder, :title, :title_by, :model, :settings, :prompt_hash, :workspace, :project_no, :pinned, :archived, :read_only, :labels, :extra, :read_through, :parent_no, :lineage, :base_seq, :began_at, :ended_at, :end_reason, :trashed_at, :purged_at, :finalized_at, :finalize_tries, :finalize_error, :last_seq, :last_reply_seq, :last_active_at, :preview, :message_count, :tool_call_count, :compacted_seq, :calls, :unknown_cost_calls, :estimated_calls, :input_tokens, :output_tokens, :cache_read_tokens, :cache_write_tokens, :reasoning_tokens, :cost_microusd, :running_turn, :epoch, :context_tokens, :context_seq);

-- name: copy_key_uploads
profile TEXT, hash TEXT

-- name: copy_columns_uploads
profile, hash, uploaded_at

-- name: copy_page_uploads
SELECT {{copy_columns_uploads}} FROM uploads WHERE (profile, hash) > (:after_profile, :after_hash) ORDER BY profile, hash LIMIT :limit;

-- name: copy_row_uploads
INSERT INTO uploads ({{copy_columns_uploads}}) VALUES (:profile, :hash, :uploaded_at);

-- name: copy_key_arrivals
no INTEGER

-- name: copy_columns_arrivals
no, id, profile, idem, key, source, message, received_at, state, session_no, turn_id, seq, reason

-- name: copy_page_arrivals
SELECT {{copy_columns_arrivals}} FROM arrivals WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_arrivals
INSERT INTO arrivals ({{copy_columns_arrivals}}) VALUES (:no, :id, :profile, :idem, :key, :source, :message, :received_at, :state, :session_no, :turn_id, :seq, :reason);

-- name: copy_key_bindings
profile TEXT, key TEXT

-- name: copy_columns_bindings
profile, key, session_no, bound_at

-- name: copy_page_bindings
SELECT {{copy_columns_bindings}} FROM bindings WHERE (profile, key) > (:after_profile, :after_key) ORDER BY profile, key LIMIT :limit;

-- name: copy_row_bindings
INSERT INTO bindings ({{copy_columns_bindings}}) VALUES (:profile, :key, :session_no, :bound_at);

-- name: copy_key_checkpoint_threads
no INTEGER

-- name: copy_columns_checkpoint_threads
no, profile, digest, name, session_no

-- name: copy_page_checkpoint_threads
SELECT {{copy_columns_checkpoint_threads}} FROM checkpoint_threads WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_checkpoint_threads
INSERT INTO checkpoint_threads ({{copy_columns_checkpoint_threads}}) VALUES (:no, :profile, :digest, :name, :session_no);

-- name: copy_key_conversation_prefixes
profile TEXT, client TEXT, digest TEXT

-- name: copy_columns_conversation_prefixes
profile, client, digest, session_no, seq

-- name: copy_page_conversation_prefixes
SELECT {{copy_columns_conversation_prefixes}} FROM conversation_prefixes WHERE (profile, client, digest) > (:after_profile, :after_client, :after_digest) ORDER BY profile, client, digest LIMIT :limit;

-- name: copy_row_conversation_prefixes
INSERT INTO conversation_prefixes ({{copy_columns_conversation_prefixes}}) VALUES (:profile, :client, :digest, :session_no, :seq);

-- name: copy_key_deliveries
no INTEGER

-- name: copy_columns_deliveries
no, id, profile, platform, chat_id, thread_id, channel, session_no, turn_id, parts, state, attempts, unclear_attempts, not_before, holder, lease_until, created_at, sent_at, reason, platform_message_id, redirected_to

-- name: copy_page_deliveries
SELECT {{copy_columns_deliveries}} FROM deliveries WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_deliveries
INSERT INTO deliveries ({{copy_columns_deliveries}}) VALUES (:no, :id, :profile, :platform, :chat_id, :thread_id, :channel, :session_no, :turn_id, :parts, :state, :attempts, :unclear_attempts, :not_before, :holder, :lease_until, :created_at, :sent_at, :reason, :platform_message_id, :redirected_to);

-- name: copy_key_drafts
session_no INTEGER

-- name: copy_columns_drafts
session_no, text, updated_at

-- name: copy_page_drafts
SELECT {{copy_columns_drafts}} FROM drafts WHERE session_no > :after_session_no ORDER BY session_no LIMIT :limit;

-- name: copy_row_drafts
INSERT INTO drafts ({{copy_columns_drafts}}) VALUES (:session_no, :text, :updated_at);

-- name: copy_key_holds
session_no INTEGER, name TEXT

-- name: copy_columns_holds
session_no, name, expires_at

-- name: copy_page_holds
SELECT {{copy_columns_holds}} FROM holds WHERE (session_no, name) > (:after_session_no, :after_name) ORDER BY session_no, name LIMIT :limit;

-- name: copy_row_holds
INSERT INTO holds ({{copy_columns_holds}}) VALUES (:session_no, :name, :expires_at);

-- name: copy_key_imported
profile TEXT, tool TEXT, native_id TEXT

-- name: copy_columns_imported
profile, tool, native_id, session_no

-- name: copy_page_imported
SELECT {{copy_columns_imported}} FROM imported WHERE (profile, tool, native_id) > (:after_profile, :after_tool, :after_native_id) ORDER BY profile, tool, native_id LIMIT :limit;

-- name: copy_row_imported
INSERT INTO imported ({{copy_columns_imported}}) VALUES (:profile, :tool, :native_id, :session_no);

-- name: copy_key_packs
no INTEGER

-- name: copy_columns_packs
no, session_no, first_seq, last_seq, size, data

-- name: copy_page_packs
SELECT {{copy_columns_packs}} FROM packs WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_packs
INSERT INTO packs ({{copy_columns_packs}}) VALUES (:no, :session_no, :first_seq, :last_seq, :size, :data);

-- name: copy_key_questions
no INTEGER

-- name: copy_columns_questions
no, id, profile, session_no, turn_id, name, code, token, body, state, asked_at, expires_at, due_at, decided_at, answered, started

-- name: copy_page_questions
SELECT {{copy_columns_questions}} FROM questions WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_questions
INSERT INTO questions ({{copy_columns_questions}}) VALUES (:no, :id, :profile, :session_no, :turn_id, :name, :code, :token, :body, :state, :asked_at, :expires_at, :due_at, :decided_at, :answered, :started);

-- name: copy_key_runs
schedule_no INTEGER, due_at INTEGER

-- name: copy_columns_runs
schedule_no, due_at, state, holder, lease_until, began_at, ended_at, session_no, reason

-- name: copy_page_runs
SELECT {{copy_columns_runs}} FROM runs WHERE (schedule_no, due_at) > (:after_schedule_no, :after_due_at) ORDER BY schedule_no, due_at LIMIT :limit;

-- name: copy_row_runs
INSERT INTO runs ({{copy_columns_runs}}) VALUES (:schedule_no, :due_at, :state, :holder, :lease_until, :began_at, :ended_at, :session_no, :reason);

-- name: copy_key_standing_approvals
no INTEGER

-- name: copy_columns_standing_approvals
no, id, profile, tool, session_no, person, given_by, by_owner, given_at, agent

-- name: copy_page_standing_approvals
SELECT {{copy_columns_standing_approvals}} FROM standing_approvals WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_standing_approvals
INSERT INTO standing_approvals ({{copy_columns_standing_approvals}}) VALUES (:no, :id, :profile, :tool, :session_no, :person, :given_by, :by_owner, :given_at, :agent);

-- name: copy_key_stored_runs
session_no INTEGER, sdk TEXT

-- name: copy_columns_stored_runs
session_no, sdk, at, run

-- name: copy_page_stored_runs
SELECT {{copy_columns_stored_runs}} FROM stored_runs WHERE (session_no, sdk) > (:after_session_no, :after_sdk) ORDER BY session_no, sdk LIMIT :limit;

-- name: copy_row_stored_runs
INSERT INTO stored_runs ({{copy_columns_stored_runs}}) VALUES (:session_no, :sdk, :at, :run);

-- name: copy_key_turns
no INTEGER

-- name: copy_columns_turns
no, id, session_no, agent, state, epoch, holder, lease_until, began_at, ended_at, first_seq, reason, partial, stop, resumable, resumed, resume_reason, crashes, crash_seq, request_hash, program_state

-- name: copy_page_turns
SELECT {{copy_columns_turns}} FROM turns WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_turns
INSERT INTO turns ({{copy_columns_turns}}) VALUES (:no, :id, :session_no, :agent, :state, :epoch, :holder, :lease_until, :began_at, :ended_at, :first_seq, :reason, :partial, :stop, :resumable, :resumed, :resume_reason, :crashes, :crash_seq, :request_hash, :program_state);

-- name: copy_key_usage
no INTEGER

-- name: copy_columns_usage
no, profile, call_id, session_no, turn_id, at, model, provider, base_url, billing_mode, task, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_microusd, cost_status, price_source, price_version

-- name: copy_page_usage
SELECT {{copy_columns_usage}} FROM usage WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_usage
INSERT INTO usage ({{copy_columns_usage}}) VALUES (:no, :profile, :call_id, :session_no, :turn_id, :at, :model, :provider, :base_url, :billing_mode, :task, :input_tokens, :output_tokens, :cache_read_tokens, :cache_write_tokens, :reasoning_tokens, :cost_microusd, :cost_status, :price_source, :price_version);

-- name: copy_key_checkpoint_namespaces
no INTEGER

-- name: copy_columns_checkpoint_namespaces
no, thread_no, digest, name

-- name: copy_page_checkpoint_namespaces
SELECT {{copy_columns_checkpoint_namespaces}} FROM checkpoint_namespaces WHERE no > :after_no ORDER BY no LIMIT :limit;

-- name: copy_row_checkpoint_namespaces
INSERT INTO checkpoint_namespaces ({{copy_columns_checkpoint_namespaces}}) VALUES (:no, :thread_no, :digest, :name);

-- name: copy_key_question_cards
question_no INTEGER, delivery_id TEXT

-- name: copy_columns_question_cards
question_no, delivery_id, channel

-- name: copy_page_question_cards
SELECT {{copy_columns_question_cards}} FROM question_cards WHERE (question_no, delivery_id) > (:after_question_no, :after_delivery_id) ORDER BY question_no, delivery_id LIMIT :limit;

-- name: copy_row_question_cards
INSERT INTO question_cards ({{copy_columns_question_cards}}) VALUES (:question_no, :delivery_id, :channel);

-- name: copy_key_checkpoint_values
namespace_no INTEGER, name TEXT

-- name: copy_columns_checkpoint_values
namespace_no, name, form, body

-- name: copy_page_checkpoint_values
SELECT {{copy_columns_checkpoint_values}} FROM checkpoint_values WHERE (namespace_no, name) > (:after_namespace_no, :after_name) ORDER BY namespace_no, name LIMIT :limit;

-- name: copy_row_checkpoint_values
INSERT INTO checkpoint_values ({{copy_columns_checkpoint_values}}) VALUES (:namespace_no, :name, :form, :body);

-- name: copy_key_checkpoint_writes
namespace_no INTEGER, checkpoint_id TEXT, task_id TEXT, idx INTEGER

-- name: copy_columns_checkpoint_writes
namespace_no, checkpoint_id, task_id, idx, task_path, channel, form, body

-- name: copy_page_checkpoint_writes
SELECT {{copy_columns_checkpoint_writes}} FROM checkpoint_writes WHERE (namespace_no, checkpoint_id, task_id, idx) > (:after_namespace_no, :after_checkpoint_id, :after_task_id, :after_idx) ORDER BY namespace_no, checkpoint_id, task_id, idx LIMIT :limit;

-- name: copy_row_checkpoint_writes
INSERT INTO checkpoint_writes ({{copy_columns_checkpoint_writes}}) VALUES (:namespace_no, :checkpoint_id, :task_id, :idx, :task_path, :channel, :form, :body);

-- name: copy_key_checkpoints
namespace_no INTEGER, id TEXT

-- name: copy_columns_checkpoints
namespace_no, id, thread_no, parent_id, run_digest, form, body, metadata_form, metadata

-- name: copy_page_checkpoints
SELECT {{copy_columns_checkpoints}} FROM checkpoints WHERE (namespace_no, id) > (:after_namespace_no, :after_id) ORDER BY namespace_no, id LIMIT :limit;

-- name: copy_row_checkpoints
INSERT INTO checkpoints ({{copy_columns_checkpoints}}) VALUES (:namespace_no, :id, :thread_no, :parent_id, :run_digest, :form, :body, :metadata_form, :metadata);
