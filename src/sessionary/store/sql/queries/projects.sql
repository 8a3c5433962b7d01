-- Projects.

-- name: insert_project
INSERT INTO projects (id, profile, name, colour, created_at) VALUES (:id, :profile, :name, :colour, :at) RETURNING no;

-- name: list_projects
SELECT p.no, p.id, p.name, p.colour, p.created_at,
    (SELECT COUNT(*) FROM sessions s WHERE s.project_no = p.no AND s.folder <> 'gone')
FROM projects p WHERE p.profile = :profile ORDER BY p.name;

-- name: get_project
SELECT no, id, name, colour, created_at FROM projects WHERE profile = :profile AND (name = :name OR id = :name);

-- name: rename_project
UPDATE projects SET name = :name, colour = :colour WHERE no = :no;

-- name: delete_project
DELETE FROM projects WHERE no = :no;
