CREATE TABLE "conversations" (
   "id" TEXT PRIMARY KEY,
   "name" TEXT,
   "model" TEXT
);
CREATE TABLE "responses" (
   "id" TEXT PRIMARY KEY,
   "model" TEXT,
   "prompt" TEXT,
   "system" TEXT,
   "prompt_json" TEXT,
   "options_json" TEXT,
   "response" TEXT,
   "response_json" TEXT,
   "conversation_id" TEXT REFERENCES "conversations"("id"),
   "duration_ms" INTEGER,
   "datetime_utc" TEXT,
   "input_tokens" INTEGER,
   "output_tokens" INTEGER,
   "token_details" TEXT,
   "schema_id" TEXT REFERENCES "schemas"("id")
, "resolved_model" TEXT, "reasoning" TEXT);
CREATE TABLE "threads" (
   "id" TEXT PRIMARY KEY,
   "name" TEXT,
   "tip_message_hash" TEXT REFERENCES "messages"("hash"),
   "forked_from" TEXT REFERENCES "threads"("id"),
   "datetime_utc" TEXT
);
INSERT INTO "threads" VALUES ('01m7jjys9xq200mh80q3x1vh1n', 'What is in notes.txt?', 'b2:24dee310568764d36a14172432828996', NULL, '2026-11-16 16:27:31.660875+00:00');
CREATE TABLE "turns" (
   "id" TEXT PRIMARY KEY,
   "thread_id" TEXT REFERENCES "threads"("id"),
   "parent_message_hash" TEXT REFERENCES "messages"("hash"),
   "tip_message_hash" TEXT REFERENCES "messages"("hash"),
   "model" TEXT,
   "resolved_model" TEXT,
   "options_json" TEXT,
   "schema_id" TEXT REFERENCES "schemas"("id"),
   "input_tokens" INTEGER,
   "output_tokens" INTEGER,
   "token_details" TEXT,
   "duration_ms" INTEGER,
   "datetime_utc" TEXT
, "response_json" TEXT);
INSERT INTO "turns" VALUES ('01m7jjysa12n8khkj87y1c6nky', '01m7jjys9xq200mh80q3x1vh1n', 'b2:caf4890548f973b159690c63af416ad1', 'b2:66a5b84c9053bd347bb8a6dd8c83e137', 'fake', NULL, NULL, NULL, 112, 21, '{"prompt_tokens_details": {"cached_tokens": 11}}', 407, '2026-11-16T16:27:31.009305+00:00', '{"content": "I read the notes.", "finish_reason": "tool_calls", "usage": {"completion_tokens": 21, "prompt_tokens": 112, "total_tokens": 133, "completion_tokens_details": {"reasoning_tokens": 0}, "prompt_tokens_details": {"cached_tokens": 11}}, "id": "fake-1", "object": "chat.completion.chunk", "model": "gpt-5", "created": 1770000000}');
INSERT INTO "turns" VALUES ('01m7jjysprmmfe8j1ngd3px22p', '01m7jjys9xq200mh80q3x1vh1n', 'b2:93b19871881c0645549de7836aca7057', 'b2:591308ae319eb126891257f3dd9229d7', 'fake', NULL, NULL, NULL, 114, 22, '{"prompt_tokens_details": {"cached_tokens": 12}}', 120, '2026-11-16T16:27:31.416739+00:00', '{"content": "", "finish_reason": "tool_calls", "usage": {"completion_tokens": 22, "prompt_tokens": 114, "total_tokens": 136, "completion_tokens_details": {"reasoning_tokens": 0}, "prompt_tokens_details": {"cached_tokens": 12}}, "id": "fake-2", "object": "chat.completion.chunk", "model": "gpt-5", "created": 1770000000}');
INSERT INTO "turns" VALUES ('01m7jjysth6ha4h2sdey494e3t', '01m7jjys9xq200mh80q3x1vh1n', 'b2:1dff88477b84024f05f54e8a60394895', 'b2:639ae6174511911607afb42f945abff3', 'fake', NULL, NULL, NULL, 116, 23, '{"prompt_tokens_details": {"cached_tokens": 13}}', 123, '2026-11-16T16:27:31.537101+00:00', '{"content": "The notes say flour and water.", "finish_reason": "stop", "usage": {"completion_tokens": 23, "prompt_tokens": 116, "total_tokens": 139, "completion_tokens_details": {"reasoning_tokens": 0}, "prompt_tokens_details": {"cached_tokens": 13}}, "id": "fake-3", "object": "chat.completion.chunk", "model": "gpt-5", "created": 1770000000}');
INSERT INTO "turns" VALUES ('01m7jjywpev65wndmdpkxjw65e', '01m7jjys9xq200mh80q3x1vh1n', 'b2:6fafdd6f2411fd97b05c6c1fd896ceac', 'b2:31606b0a42f245b0176edee8f15d494e', 'fake', NULL, NULL, NULL, 118, 24, '{"prompt_tokens_details": {"cached_tokens": 14}}', 272, '2026-11-16T16:27:34.478341+00:00', '{"content": "", "finish_reason": "tool_calls", "usage": {"completion_tokens": 24, "prompt_tokens": 118, "total_tokens": 142, "completion_tokens_details": {"reasoning_tokens": 0}, "prompt_tokens_details": {"cached_tokens": 14}}, "id": "fake-4", "object": "chat.completion.chunk", "model": "gpt-5", "created": 1770000000}');
INSERT INTO "turns" VALUES ('01m7jjywyy6r0j7h46xycrj5rb', '01m7jjys9xq200mh80q3x1vh1n', 'b2:a5bf5cfa2e63dfe7ea8252adba317e2e', 'b2:24dee310568764d36a14172432828996', 'fake', NULL, NULL, NULL, 120, 25, '{"prompt_tokens_details": {"cached_tokens": 15}}', 103, '2026-11-16T16:27:34.750944+00:00', '{"content": "Salt is on the list now.", "finish_reason": "stop", "usage": {"completion_tokens": 25, "prompt_tokens": 120, "total_tokens": 145, "completion_tokens_details": {"reasoning_tokens": 0}, "prompt_tokens_details": {"cached_tokens": 15}}, "id": "fake-5", "object": "chat.completion.chunk", "model": "gpt-5", "created": 1770000000}');
CREATE TABLE "messages" (
   "hash" TEXT PRIMARY KEY,
   "parent_hash" TEXT REFERENCES "messages"("hash"),
   "role" TEXT,
   "provider_metadata" TEXT
);
INSERT INTO "messages" VALUES ('b2:caf4890548f973b159690c63af416ad1', NULL, 'user', NULL);
INSERT INTO "messages" VALUES ('b2:66a5b84c9053bd347bb8a6dd8c83e137', 'b2:caf4890548f973b159690c63af416ad1', 'assistant', NULL);
INSERT INTO "messages" VALUES ('b2:93b19871881c0645549de7836aca7057', 'b2:66a5b84c9053bd347bb8a6dd8c83e137', 'tool', NULL);
INSERT INTO "messages" VALUES ('b2:591308ae319eb126891257f3dd9229d7', 'b2:93b19871881c0645549de7836aca7057', 'assistant', NULL);
INSERT INTO "messages" VALUES ('b2:1dff88477b84024f05f54e8a60394895', 'b2:591308ae319eb126891257f3dd9229d7', 'tool', NULL);
INSERT INTO "messages" VALUES ('b2:639ae6174511911607afb42f945abff3', 'b2:1dff88477b84024f05f54e8a60394895', 'assistant', NULL);
INSERT INTO "messages" VALUES ('b2:6fafdd6f2411fd97b05c6c1fd896ceac', 'b2:639ae6174511911607afb42f945abff3', 'user', NULL);
INSERT INTO "messages" VALUES ('b2:31606b0a42f245b0176edee8f15d494e', 'b2:6fafdd6f2411fd97b05c6c1fd896ceac', 'assistant', NULL);
INSERT INTO "messages" VALUES ('b2:a5bf5cfa2e63dfe7ea8252adba317e2e', 'b2:31606b0a42f245b0176edee8f15d494e', 'tool', NULL);
INSERT INTO "messages" VALUES ('b2:24dee310568764d36a14172432828996', 'b2:a5bf5cfa2e63dfe7ea8252adba317e2e', 'assistant', NULL);
CREATE TABLE "parts" (
   "id" INTEGER PRIMARY KEY,
   "message_hash" TEXT REFERENCES "messages"("hash"),
   "position" INTEGER,
   "type" TEXT,
   "tool_name" TEXT,
   "text" TEXT,
   "payload" TEXT
);
INSERT INTO "parts" VALUES (1, 'b2:caf4890548f973b159690c63af416ad1', 0, 'text', NULL, 'What is in notes.txt?', NULL);
INSERT INTO "parts" VALUES (2, 'b2:66a5b84c9053bd347bb8a6dd8c83e137', 0, 'text', NULL, 'I read the notes.', NULL);
INSERT INTO "parts" VALUES (3, 'b2:66a5b84c9053bd347bb8a6dd8c83e137', 1, 'tool_call', 'read_notes', NULL, '{"name": "read_notes", "arguments": {}, "tool_call_id": "call_1"}');
INSERT INTO "parts" VALUES (4, 'b2:93b19871881c0645549de7836aca7057', 0, 'tool_result', 'read_notes', NULL, '{"name": "read_notes", "output": "flour\nwater\n", "tool_call_id": "call_1"}');
INSERT INTO "parts" VALUES (5, 'b2:591308ae319eb126891257f3dd9229d7', 0, 'tool_call', 'count_lines', NULL, '{"name": "count_lines", "arguments": {"name": "notes.txt"}, "tool_call_id": "call_2"}');
INSERT INTO "parts" VALUES (6, 'b2:1dff88477b84024f05f54e8a60394895', 0, 'tool_result', 'count_lines', NULL, '{"name": "count_lines", "output": "2", "tool_call_id": "call_2"}');
INSERT INTO "parts" VALUES (7, 'b2:639ae6174511911607afb42f945abff3', 0, 'text', NULL, 'The notes say flour and water.', NULL);
INSERT INTO "parts" VALUES (8, 'b2:6fafdd6f2411fd97b05c6c1fd896ceac', 0, 'text', NULL, 'Put salt on the list.', NULL);
INSERT INTO "parts" VALUES (9, 'b2:31606b0a42f245b0176edee8f15d494e', 0, 'tool_call', 'add_note', NULL, '{"name": "add_note", "arguments": {"note": "salt"}, "tool_call_id": "call_4"}');
INSERT INTO "parts" VALUES (10, 'b2:a5bf5cfa2e63dfe7ea8252adba317e2e', 0, 'tool_result', 'add_note', NULL, '{"name": "add_note", "output": "ok", "tool_call_id": "call_4"}');
INSERT INTO "parts" VALUES (11, 'b2:24dee310568764d36a14172432828996', 0, 'text', NULL, 'Salt is on the list now.', NULL);
CREATE TABLE "fragments" (
   "id" INTEGER PRIMARY KEY,
   "hash" TEXT,
   "content" TEXT,
   "datetime_utc" TEXT,
   "source" TEXT
);
