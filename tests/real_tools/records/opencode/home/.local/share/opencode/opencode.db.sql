CREATE TABLE `project` (
          `id` text PRIMARY KEY,
          `worktree` text NOT NULL,
          `vcs` text,
          `name` text,
          `icon_url` text,
          `icon_url_override` text,
          `icon_color` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_initialized` integer,
          `sandboxes` text NOT NULL,
          `commands` text
        );
INSERT INTO "project" VALUES ('global', '/', NULL, NULL, NULL, NULL, NULL, 1794846327467, 1794846353477, NULL, '[]', NULL);
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES ('ses_e1ad2709fffeq9CPCbEIFpOmRO', 'global', NULL, NULL, 'hidden-otter', '/home/ann/mill', 'home/ann/mill', 'The mill', '1.18.33', NULL, 0, 0, 0, NULL, NULL, 0.0032895, 515, 115, 0, 65, 0, NULL, '[{"permission": "question", "pattern": "*", "action": "deny"}, {"permission": "plan_enter", "pattern": "*", "action": "deny"}, {"permission": "plan_exit", "pattern": "*", "action": "deny"}]', 'build', '{"id": "claude-sonnet-4-5", "providerID": "anthropic", "variant": "default"}', 1794846330720, 1794846366762, NULL, NULL);
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES ('msg_1e52d9096001ovgLw8D70SN2Dq', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846331030, 1794846344338, '{"role": "user", "time": {"created": 1794846331030}, "agent": "build", "model": {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}, "summary": {"diffs": []}}');
INSERT INTO "message" VALUES ('msg_1e52d9fcb001SJrytRvrmNPWD1', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846334923, 1794846341350, '{"parentID": "msg_1e52d9096001ovgLw8D70SN2Dq", "role": "assistant", "mode": "build", "agent": "build", "path": {"cwd": "/home/ann/mill", "root": "/"}, "cost": 0.0006213, "tokens": {"total": 133, "input": 101, "output": 21, "reasoning": 0, "cache": {"write": 0, "read": 11}}, "modelID": "claude-sonnet-4-5", "providerID": "anthropic", "time": {"created": 1794846334923, "completed": 1794846341330}, "finish": "tool-calls"}');
INSERT INTO "message" VALUES ('msg_1e52db906001q2JtlxqsmtJdrQ', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846341382, 1794846344049, '{"parentID": "msg_1e52d9096001ovgLw8D70SN2Dq", "role": "assistant", "mode": "build", "agent": "build", "path": {"cwd": "/home/ann/mill", "root": "/"}, "cost": 0.0006396, "tokens": {"total": 136, "input": 102, "output": 22, "reasoning": 0, "cache": {"write": 0, "read": 12}}, "modelID": "claude-sonnet-4-5", "providerID": "anthropic", "time": {"created": 1794846341382, "completed": 1794846344032}, "finish": "tool-calls"}');
INSERT INTO "message" VALUES ('msg_1e52dc3950012mS8aoU2tOD2De', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846344085, 1794846344685, '{"parentID": "msg_1e52d9096001ovgLw8D70SN2Dq", "role": "assistant", "mode": "build", "agent": "build", "path": {"cwd": "/home/ann/mill", "root": "/"}, "cost": 0.0006579, "tokens": {"total": 139, "input": 103, "output": 23, "reasoning": 0, "cache": {"write": 0, "read": 13}}, "modelID": "claude-sonnet-4-5", "providerID": "anthropic", "time": {"created": 1794846344085, "completed": 1794846344684}, "finish": "stop"}');
INSERT INTO "message" VALUES ('msg_1e52df503001KSAf8XnQUYskhf', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846356739, 1794846366818, '{"role": "user", "time": {"created": 1794846356739}, "agent": "build", "model": {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}, "summary": {"diffs": []}}');
INSERT INTO "message" VALUES ('msg_1e52e075f0011OksBnfmAw7C5x', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846361450, 1794846363343, '{"parentID": "msg_1e52df503001KSAf8XnQUYskhf", "role": "assistant", "mode": "build", "agent": "build", "path": {"cwd": "/home/ann/mill", "root": "/"}, "cost": 0.0006762, "tokens": {"total": 142, "input": 104, "output": 24, "reasoning": 0, "cache": {"write": 0, "read": 14}}, "modelID": "claude-sonnet-4-5", "providerID": "anthropic", "time": {"created": 1794846361450, "completed": 1794846363342}, "finish": "tool-calls"}');
INSERT INTO "message" VALUES ('msg_1e52e0ee0001CDJDdr1ceNFWMo', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846363360, 1794846366571, '{"parentID": "msg_1e52df503001KSAf8XnQUYskhf", "role": "assistant", "mode": "build", "agent": "build", "path": {"cwd": "/home/ann/mill", "root": "/"}, "cost": 0.0006945, "tokens": {"total": 145, "input": 105, "output": 25, "reasoning": 0, "cache": {"write": 0, "read": 15}}, "modelID": "claude-sonnet-4-5", "providerID": "anthropic", "time": {"created": 1794846363360, "completed": 1794846366567}, "finish": "stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES ('prt_1e52d90a1001eBWBl8605XJDRa', 'msg_1e52d9096001ovgLw8D70SN2Dq', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846334839, 1794846334847, '{"type": "text", "text": "\"What is in notes.txt?\""}');
INSERT INTO "part" VALUES ('prt_1e52db5c0001l8e4I7OB8NgUrW', 'msg_1e52d9fcb001SJrytRvrmNPWD1', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846340545, 1794846340556, '{"type": "step-start"}');
INSERT INTO "part" VALUES ('prt_1e52db5d8001WyaUESX1YwNV4Z', 'msg_1e52d9fcb001SJrytRvrmNPWD1', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846340569, 1794846340636, '{"type": "text", "text": "I read the notes.", "time": {"start": 1794846340568, "end": 1794846340634}}');
INSERT INTO "part" VALUES ('prt_1e52db62b0012MTFEVVet63EUX', 'msg_1e52d9fcb001SJrytRvrmNPWD1', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846340652, 1794846341249, '{"type": "tool", "tool": "read", "callID": "call_1", "state": {"status": "completed", "input": {"filePath": "/home/ann/mill/notes.txt"}, "output": "<path>/home/ann/mill/notes.txt</path>\n<type>file</type>\n<content>\n1: flour\n2: water\n\n(End of file - total 2 lines)\n</content>", "metadata": {"preview": "flour\nwater", "truncated": false, "loaded": [], "display": {"type": "file", "path": "/home/ann/mill/notes.txt", "text": "flour\nwater", "lineStart": 1, "lineEnd": 2, "totalLines": 2, "truncated": false}}, "title": "home/ann/mill/notes.txt", "time": {"start": 1794846340739, "end": 1794846341248}}}');
INSERT INTO "part" VALUES ('prt_1e52db885001EQvZVTgoo3Bi61', 'msg_1e52d9fcb001SJrytRvrmNPWD1', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846341266, 1794846341268, '{"reason": "tool-calls", "type": "step-finish", "tokens": {"total": 133, "input": 101, "output": 21, "reasoning": 0, "cache": {"write": 0, "read": 11}}, "cost": 0.0006213}');
INSERT INTO "part" VALUES ('prt_1e52dba60001zQqws49yR4id1d', 'msg_1e52db906001q2JtlxqsmtJdrQ', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846341729, 1794846341755, '{"type": "step-start"}');
INSERT INTO "part" VALUES ('prt_1e52dba7d001xHiIz3lYOuZCH6', 'msg_1e52db906001q2JtlxqsmtJdrQ', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846341757, 1794846343299, '{"type": "tool", "tool": "bash", "callID": "call_2", "state": {"status": "completed", "input": {"command": "wc -l notes.txt", "description": "Count lines"}, "output": "2 notes.txt\n", "metadata": {"output": "2 notes.txt\n", "exit": 0, "truncated": false}, "title": "wc -l notes.txt", "time": {"start": 1794846341885, "end": 1794846343234}}}');
INSERT INTO "part" VALUES ('prt_1e52dc141001BUFHS56umd25dr', 'msg_1e52db906001q2JtlxqsmtJdrQ', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846343490, 1794846343575, '{"reason": "tool-calls", "type": "step-finish", "tokens": {"total": 136, "input": 102, "output": 22, "reasoning": 0, "cache": {"write": 0, "read": 12}}, "cost": 0.0006396}');
INSERT INTO "part" VALUES ('prt_1e52dc521001mgDnxCYBWzX9Hb', 'msg_1e52dc3950012mS8aoU2tOD2De', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846344481, 1794846344520, '{"type": "step-start"}');
INSERT INTO "part" VALUES ('prt_1e52dc549001EdBjT75qa2WzNH', 'msg_1e52dc3950012mS8aoU2tOD2De', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846344538, 1794846344573, '{"type": "text", "text": "The notes say flour and water.", "time": {"start": 1794846344521, "end": 1794846344572}}');
INSERT INTO "part" VALUES ('prt_1e52dc5ad001fqzJap46rMbHhr', 'msg_1e52dc3950012mS8aoU2tOD2De', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846344621, 1794846344643, '{"reason": "stop", "type": "step-finish", "tokens": {"total": 139, "input": 103, "output": 23, "reasoning": 0, "cache": {"write": 0, "read": 13}}, "cost": 0.0006579}');
INSERT INTO "part" VALUES ('prt_1e52df516001qUTbEXYCJGKH3T', 'msg_1e52df503001KSAf8XnQUYskhf', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846361332, 1794846361335, '{"type": "text", "text": "\"Put salt on the list.\""}');
INSERT INTO "part" VALUES ('prt_1e52e0d63001i4180bjsplG5jP', 'msg_1e52e075f0011OksBnfmAw7C5x', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846362980, 1794846363000, '{"type": "step-start"}');
INSERT INTO "part" VALUES ('prt_1e52e0d84001vr31nzPcYHWFB6', 'msg_1e52e075f0011OksBnfmAw7C5x', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846363012, 1794846363256, '{"type": "tool", "tool": "edit", "callID": "call_4", "state": {"status": "completed", "input": {"filePath": "/home/ann/mill/notes.txt", "oldString": "water", "newString": "water\nsalt"}, "output": "Edit applied successfully.", "metadata": {"diagnostics": {}, "diff": "Index: /home/ann/mill/notes.txt\n===================================================================\n--- /home/ann/mill/notes.txt\n+++ /home/ann/mill/notes.txt\n@@ -1,2 +1,3 @@\n flour\n water\n+salt\n", "filediff": {"file": "/home/ann/mill/notes.txt", "patch": "Index: /home/ann/mill/notes.txt\n===================================================================\n--- /home/ann/mill/notes.txt\n+++ /home/ann/mill/notes.txt\n@@ -1,2 +1,3 @@\n flour\n water\n+salt\n", "additions": 1, "deletions": 0}, "truncated": false}, "title": "home/ann/mill/notes.txt", "time": {"start": 1794846363143, "end": 1794846363253}}}');
INSERT INTO "part" VALUES ('prt_1e52e0e94001VCk4BWVvs08NoX', 'msg_1e52e075f0011OksBnfmAw7C5x', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846363284, 1794846363292, '{"reason": "tool-calls", "type": "step-finish", "tokens": {"total": 142, "input": 104, "output": 24, "reasoning": 0, "cache": {"write": 0, "read": 14}}, "cost": 0.0006762}');
INSERT INTO "part" VALUES ('prt_1e52e1aa0001keAbcleARNxGo2', 'msg_1e52e0ee0001CDJDdr1ceNFWMo', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846366369, 1794846366415, '{"type": "step-start"}');
INSERT INTO "part" VALUES ('prt_1e52e1ad1001wJeuO9udKFKNWo', 'msg_1e52e0ee0001CDJDdr1ceNFWMo', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846366417, 1794846366487, '{"type": "text", "text": "Salt is on the list now.", "time": {"start": 1794846366417, "end": 1794846366486}}');
INSERT INTO "part" VALUES ('prt_1e52e1b23001tcbs5MkS0npfcS', 'msg_1e52e0ee0001CDJDdr1ceNFWMo', 'ses_e1ad2709fffeq9CPCbEIFpOmRO', 1794846366500, 1794846366501, '{"reason": "stop", "type": "step-finish", "tokens": {"total": 145, "input": 105, "output": 25, "reasoning": 0, "cache": {"write": 0, "read": 15}}, "cost": 0.0006945}');
