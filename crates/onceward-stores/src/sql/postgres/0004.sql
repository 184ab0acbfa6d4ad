-- Comparing texts is most of what a look-up and a new entry of the primary key cost, and holding them most of its
-- size. Numbers made of the id do the same work; `digest.rs` makes the same ones.
ALTER TABLE onceward_receipts ADD COLUMN id_high bigint, ADD COLUMN id_middle bigint, ADD COLUMN id_low bigint;

-- One walk over the table writes the numbers and builds the index.
-- (The old key may have another name than usual: that of a table which was renamed stays with that table.)
DO $$
DECLARE
    old name;
    id text := $id$decode(lpad(to_hex(length(scope)), 2, '0') || lpad(to_hex(length(operation)), 4, '0'), 'hex')
        || convert_to(scope || operation || key, 'UTF8')$id$;
BEGIN
    SELECT conname INTO STRICT old FROM pg_constraint
    WHERE conrelid = 'onceward_receipts'::regclass AND contype = 'p';
    EXECUTE format(
        $change$ALTER TABLE onceward_receipts
            ALTER COLUMN id_high TYPE bigint USING ('x' || encode(
                substr(sha256(convert_to(scope, 'UTF8')), 1, 4) || substr(sha256(%2$s), 1, 4), 'hex'))::bit(64)::bigint,
            ALTER COLUMN id_middle TYPE bigint USING ('x' || encode(substr(sha256(%2$s), 5, 8), 'hex'))::bit(64)::bigint,
            ALTER COLUMN id_low TYPE bigint USING ('x' || encode(substr(sha256(%2$s), 13, 8), 'hex'))::bit(64)::bigint,
            ALTER COLUMN id_high SET NOT NULL,
            ALTER COLUMN id_middle SET NOT NULL,
            ALTER COLUMN id_low SET NOT NULL,
            DROP CONSTRAINT %1$I,
            ADD PRIMARY KEY (id_high, id_middle, id_low)$change$,
        old, id);
END
$$;
