"""Numbered queues and streams of RabbitMQ: the publisher, and the sources that read them."""
