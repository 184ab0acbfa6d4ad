// Stripe's SDK for Node as it comes. With KEY=intent the program gives the name of the intent as the key, as the documentation
// advises; without it the SDK makes a key for each call.
const Stripe = require('stripe');
const url = new URL(process.env.ONCEWARD_URL), intent = process.env.ONCEWARD_INTENT;
const stripe = new Stripe('sk_test_none', { host: url.hostname, port: url.port, protocol: 'http', telemetry: false });
const options = process.env.KEY === 'intent' ? { idempotencyKey: intent } : {};
stripe.paymentIntents.create({ amount: 1200, currency: 'eur', metadata: { intent } }, options)
  .then(() => {}, (error) => { console.error(error.message); process.exit(1); });
