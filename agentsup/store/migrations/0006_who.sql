-- Who may answer a question; operators always may.
ALTER TABLE questions ADD COLUMN who TEXT NOT NULL DEFAULT 'people'
    CHECK (who IN ('people', 'asker', 'operators'));
