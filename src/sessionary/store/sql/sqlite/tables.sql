SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name;
