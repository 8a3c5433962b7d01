-- The deliveries of a channel or a platform that sends little are listed without reading those of all others.
-- What is open has an index of its own, and must not be looked for among what is done.
CREATE INDEX deliveries_done_by_channel ON deliveries (profile, channel, no) WHERE state <> 'waiting' AND state <> 'sending';
CREATE INDEX deliveries_done_by_platform ON deliveries (profile, platform, no) WHERE state <> 'waiting' AND state <> 'sending';
