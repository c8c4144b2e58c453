# frozen_string_literal: true

require_relative "version"
require_relative "base/text"
require_relative "base/as_json"
require_relative "base/uncopyable"
require_relative "base/requires_super"
require_relative "base/signal_trap"
require_relative "base/threads"
require_relative "base/shared_thread"
require_relative "base/seconds"
require_relative "base/deadline"
require_relative "base/suggestion"
require_relative "base/keywords"

# Helpers that know nothing of Kafka.
module Penstock
  private_constant :Text, :AsJson, :Uncopyable, :RequiresSuper, :SignalTrap, :Threads, :SharedThread, :Seconds, :Deadline,
                   :Suggestion, :Keywords
end
