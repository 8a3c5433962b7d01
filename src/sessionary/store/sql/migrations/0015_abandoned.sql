--@ sqlite name 0012_abandoned
-- What could not be delivered is counted and listed without reading what was.
CREATE INDEX deliveries_abandoned ON deliveries (profile, no) WHERE state = 'abandoned';
