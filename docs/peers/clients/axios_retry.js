// axios-retry as its README has it. By default it does not retry POST; FORM=post lets it retry network errors and 5xx of a
// POST that has a key, with its exponential delay.
const axios = require('axios'), { default: axiosRetry, exponentialDelay, isNetworkError, isRetryableError } = require('axios-retry');
const { ONCEWARD_URL: url, ONCEWARD_INTENT: intent, FORM } = process.env;
const post = { retries: 3, retryDelay: exponentialDelay, retryCondition: (error) => isNetworkError(error) || isRetryableError(error) };
axiosRetry(axios, FORM === 'post' ? post : { retries: 3 });
axios.post(url, { intent, amount: 12 }, { headers: { 'Idempotency-Key': intent }, timeout: 30000 })
  .then(() => {}, (error) => { console.error(error.message); process.exit(1); });
