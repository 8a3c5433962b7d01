-- The retractions of a session, found without walking its compactions: a long conversation has hundreds of those.
CREATE INDEX retractions ON entries (entry_no) WHERE kind = 'retraction';
