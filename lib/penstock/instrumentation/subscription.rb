# frozen_string_literal: true

module Penstock
  # One subscription to a {Monitor}: `name` is the method to call; nil: a block, which is called itself.
  # @api private
  Subscription = Struct.new(:target, :name) do
    def notify(event) = name ? target.public_send(name, event) : target.call(event)

    def same?(other) = target.equal?(other.target)

    # @return [String] its name: a class, or where a block begins
    def to_s
      return target.is_a?(Module) ? target.name.to_s : target.class.name.to_s if name

      target.source_location ? target.source_location.join(":") : target.inspect
    end

    # Tells of a listener that raised, once; who listens to errors and raises itself is not told.
    # @param error [Exception]
    # @param event [Event]
    # @param others [Array<Subscription>] those of "error.occurred"
    def failed(error, event, others)
      others = others.reject { |other| other.same?(self) } if event.id == "error.occurred"
      return complain(error, event) if others.empty?

      news = Event.new("error.occurred", { type: Subscription::FAILURES.fetch(event.id, "listener.error"), error:,
                                           event: event.id, producer_id: event.payload[:producer_id] })
      others.each do |other|
        other.notify(news)
      rescue StandardError, ScriptError, SystemStackError => e
        complain(e, news)
      end
    end

    private

    def complain(error, event)
      news = event.payload[:error]
      news &&= ", when told of #{Text.describe(news)}"
      warn "penstock: a listener of #{event.id} raised #{Text.describe(error)} (#{error.backtrace&.first})#{news}"
    rescue IOError, SystemCallError
      nil # there is no stderr: nobody is left to tell
    end
  end

  # What "error.occurred" says of a listener that has failed, by its event.
  Subscription::FAILURES = { "message.acknowledged" => "callbacks.delivery.error",
                             "statistics.emitted" => "callbacks.statistics.error",
                             "oauthbearer.token_refresh" => "callbacks.oauthbearer_token_refresh.error",
                             "error.occurred" => "callbacks.error.error" }.freeze
end
