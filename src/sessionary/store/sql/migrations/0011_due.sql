--@ sqlite name 0009_due
-- What is due is found by its time: a long queue costs a sender nothing.
CREATE INDEX deliveries_due ON deliveries (not_before, no) WHERE state IN ('waiting', 'sending');
