"""RabbitMQ: who publishes into numbered queues, and how rota reads them."""
