-- Hidden ids are hashed with a salt of the store's own, so that nobody finds a phone number by hashing all of them.
--@ sqlite
INSERT INTO meta (name, value) VALUES ('redaction_salt', lower(hex(randomblob(16))));
--@ postgres
INSERT INTO meta (name, value) VALUES ('redaction_salt', replace(CAST(gen_random_uuid() AS TEXT), '-', ''));
