-- Conversations that are recognised by their beginning.

-- name: put_prefix
INSERT INTO conversation_prefixes (profile, client, digest, session_no, seq)
VALUES (:profile, :client, :digest, :session_no, :seq)
ON CONFLICT (profile, client, digest) DO UPDATE SET session_no = excluded.session_no, seq = excluded.seq;

-- name: find_prefixes
SELECT digest, session_no, seq FROM conversation_prefixes
WHERE profile = :profile AND client = :client AND digest {{among_names}};

-- name: delete_prefixes
DELETE FROM conversation_prefixes WHERE session_no = :session_no;
