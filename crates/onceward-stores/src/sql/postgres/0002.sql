-- What the entries of a volatile front are sealed with. `onceward migrate --new-identity` replaces it.
CREATE TABLE onceward_identity (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    identity  bytea NOT NULL,
    seal_key  bytea NOT NULL,
    renewed   timestamptz NOT NULL DEFAULT clock_timestamp()
);
