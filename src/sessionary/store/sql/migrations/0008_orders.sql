-- By what sessions are listed besides their activity. A table apart, kept by triggers: an append changes
-- none of this, and does not pay for its indexes.
CREATE TABLE session_orders (
    session_no    BIGINT NOT NULL PRIMARY KEY,
    profile       TEXT COLLATE "C" NOT NULL,
    shelf         TEXT NOT NULL,
    began_at      BIGINT NOT NULL,
    name          TEXT COLLATE "C" NOT NULL,
    cost_microusd BIGINT NOT NULL
);
INSERT INTO session_orders SELECT no, profile, shelf, began_at, lower(COALESCE(title, preview, '') COLLATE "C"), cost_microusd FROM sessions;
CREATE INDEX sessions_by_creation ON session_orders (profile, shelf, began_at, session_no);
CREATE INDEX sessions_by_name ON session_orders (profile, shelf, name, session_no);
CREATE INDEX sessions_by_cost ON session_orders (profile, shelf, cost_microusd, session_no);

--@ sqlite
CREATE TRIGGER sessions_begin_in_order AFTER INSERT ON sessions
BEGIN
    INSERT INTO session_orders VALUES (NEW.no, NEW.profile, NEW.shelf, NEW.began_at,
        lower(COALESCE(NEW.title, NEW.preview, '')), NEW.cost_microusd);
END;

CREATE TRIGGER sessions_stay_in_order
AFTER UPDATE OF profile, shelf, began_at, title, preview, cost_microusd ON sessions
BEGIN
    UPDATE session_orders SET profile = NEW.profile, shelf = NEW.shelf, began_at = NEW.began_at,
        name = lower(COALESCE(NEW.title, NEW.preview, '')), cost_microusd = NEW.cost_microusd
    WHERE session_no = NEW.no;
END;
--@ postgres
CREATE FUNCTION begin_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_orders VALUES (NEW.no, NEW.profile, NEW.shelf, NEW.began_at,
        lower(COALESCE(NEW.title, NEW.preview, '') COLLATE "C"), NEW.cost_microusd);
    RETURN NULL;
END $$;
CREATE TRIGGER sessions_begin_in_order AFTER INSERT ON sessions
FOR EACH ROW EXECUTE FUNCTION begin_in_order();

CREATE FUNCTION stay_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE session_orders SET profile = NEW.profile, shelf = NEW.shelf, began_at = NEW.began_at,
        name = lower(COALESCE(NEW.title, NEW.preview, '') COLLATE "C"), cost_microusd = NEW.cost_microusd
    WHERE session_no = NEW.no;
    RETURN NULL;
END $$;
CREATE TRIGGER sessions_stay_in_order
AFTER UPDATE OF profile, shelf, began_at, title, preview, cost_microusd ON sessions
FOR EACH ROW EXECUTE FUNCTION stay_in_order();
