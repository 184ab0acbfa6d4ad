// The work that all Node services do: 15 ms, one line in a file, an answer with a new id. Hooks: X-Slow takes that many
// milliseconds, X-Fail fails before the effect, X-Fail-After fails after it with that status.
const fs = require('fs'), crypto = require('crypto');
const FILE = process.env.EFFECTS;

exports.count = () => {
  try { return fs.readFileSync(FILE, 'utf8').split('\n').length - 1; } catch { return 0; }
};

exports.charge = async (headers, body) => {
  if (headers['x-fail']) return { status: 500, body: { error: 'failed before the effect' } };
  await new Promise((done) => setTimeout(done, Number(headers['x-slow'] || 15)));
  const id = 'ch_' + crypto.randomBytes(6).toString('hex');
  fs.appendFileSync(FILE, id + '\n');
  const after = Number(headers['x-fail-after']);
  if (after) return { status: after, body: { error: 'failed after the effect' } };
  return { status: 201, location: '/charges/' + id, body: { id, amount: body.amount } };
};

exports.read = (request) => new Promise((done, failed) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk)).on('error', failed);
  request.on('end', () => done(Buffer.concat(chunks).toString()));
});

exports.send = (response, { status, location, body }) => {
  response.writeHead(status, { 'content-type': 'application/json', ...(location ? { location } : {}) });
  response.end(JSON.stringify(body));
};
