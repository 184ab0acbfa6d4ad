// Written by hand, as articles have it. FORM=autocommit: INSERT ON CONFLICT DO NOTHING, run, UPDATE with the answer. FORM=in_transaction:
// all of that and the effect in one transaction, so that a duplicate waits at the unique index.
const http = require('http'), crypto = require('crypto'), work = require('./work.js');
const { Pool } = require('pg');
// Each form has a schema of its own: both are judged at the same time.
const FORM = process.env.FORM;
const pool = new Pool({ host: '127.0.0.1', port: Number(process.env.PGPORT), user: 'postgres', database: 'postgres', max: 50, options: `-c search_path=${FORM}` });
const inTransaction = FORM === 'in_transaction';
const TABLES = `create schema if not exists ${FORM}; create table if not exists keys (key text primary key, answer jsonb); create table if not exists charges (id text primary key)`;
async function charge(client, request, body) {
  const key = request.headers['idempotency-key'];
  if (!key) return { status: 400, body: { error: 'Idempotency-Key is required' } };
  if (inTransaction) await client.query('begin');
  const claimed = await client.query('insert into keys (key) values ($1) on conflict do nothing', [key]);
  if (claimed.rowCount === 0) {
    if (inTransaction) await client.query('rollback');
    const known = await client.query('select answer from keys where key = $1', [key]);
    return (known.rows[0] && known.rows[0].answer) || { status: 409, body: { error: 'in progress' } };
  }
  if (request.headers['x-fail']) {
    if (inTransaction) await client.query('rollback');
    return { status: 500, body: { error: 'failed before the effect' } };
  }
  await new Promise((done) => setTimeout(done, Number(request.headers['x-slow'] || 15)));
  const id = 'ch_' + crypto.randomBytes(6).toString('hex');
  await client.query('insert into charges values ($1)', [id]);
  const after = Number(request.headers['x-fail-after']), failure = { status: after, body: { error: 'failed after the effect' } };
  // Between the effect and the answer's record. In a transaction there is no effect before the commit, so there it is after it.
  if (after && !inTransaction) return failure;
  const answer = { status: 201, location: '/charges/' + id, body: { id, amount: body.amount } };
  await client.query('update keys set answer = $2 where key = $1', [key, answer]);
  if (inTransaction) await client.query('commit');
  return after ? failure : answer;
}
pool.query(TABLES).then(() => http.createServer(async (request, response) => {
  if (request.method === 'GET') return response.end((await pool.query('select count(*) from charges')).rows[0].count);
  let body;
  try { body = JSON.parse(await work.read(request)); } catch { return work.send(response, { status: 400, body: { error: 'no JSON' } }); }
  const client = await pool.connect();
  try { work.send(response, await charge(client, request, body)); } catch (error) {
    await client.query('rollback').catch(() => {});
    work.send(response, { status: 500, body: { error: error.message } });
  } finally { client.release(); }
}).listen(process.env.PORT, '127.0.0.1'));
