// AWS Powertools for TypeScript: makeIdempotent around a handler, DynamoDB (dynalite), the key from a header by JMESPath. The
// library throws; which status an error becomes is decided here.
const http = require('http'), work = require('./work.js');
Object.assign(process.env, { AWS_ACCESS_KEY_ID: 'x', AWS_SECRET_ACCESS_KEY: 'x', AWS_REGION: 'us-east-1', AWS_LAMBDA_FUNCTION_NAME: 'charges' });
const { makeIdempotent, IdempotencyConfig } = require('@aws-lambda-powertools/idempotency');
const { DynamoDBPersistenceLayer } = require('@aws-lambda-powertools/idempotency/dynamodb');
const { DynamoDBClient, CreateTableCommand } = require('@aws-sdk/client-dynamodb');
const client = new DynamoDBClient({ endpoint: process.env.DYNAMODB, region: 'us-east-1' });
const persistenceStore = new DynamoDBPersistenceLayer({ tableName: 'idempotency', awsSdkV3Client: client });
const config = new IdempotencyConfig({ eventKeyJmesPath: 'headers."idempotency-key"' });
const handler = makeIdempotent(async (event) => {
  const done = await work.charge(event.headers, JSON.parse(event.body));
  if (done.status >= 500) throw new Error(JSON.stringify(done));
  return done;
}, { persistenceStore, config });
const STATUSES = { IdempotencyAlreadyInProgressError: 409, IdempotencyValidationError: 422, IdempotencyKeyError: 400 };
const table = { TableName: 'idempotency', KeySchema: [{ AttributeName: 'id', KeyType: 'HASH' }], AttributeDefinitions: [{ AttributeName: 'id', AttributeType: 'S' }], BillingMode: 'PAY_PER_REQUEST' };
client.send(new CreateTableCommand(table)).catch((error) => { if (error.name !== 'ResourceInUseException') throw error; }).then(() => {
  http.createServer(async (request, response) => {
    if (request.method === 'GET') return response.end(String(work.count()));
    const event = { headers: request.headers, body: await work.read(request), path: request.url };
    try { work.send(response, await handler(event, { getRemainingTimeInMillis: () => 5000, functionName: 'charges' })); } catch (error) {
      try { return work.send(response, JSON.parse(error.message)); } catch { /* not ours */ }
      work.send(response, { status: STATUSES[error.name] || 500, body: { error: error.name } });
    }
  }).listen(process.env.PORT, '127.0.0.1');
});
