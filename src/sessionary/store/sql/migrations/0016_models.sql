--@ sqlite name 0013_models
-- The models of a profile are listed one step of the index at a time, however many sessions there are.
CREATE INDEX sessions_by_model ON sessions (profile, model) WHERE model IS NOT NULL AND shelf <> 'gone';
