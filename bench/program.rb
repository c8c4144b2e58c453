# frozen_string_literal: true

require_relative "peer"

module Bench
  # The programs in programs/, for measurements that the peers' workloads do not cover. They use the same protocol, and are
  # started as PROGRAM SERVERS TOPIC ARGUMENTS... SETTING=VALUE...
  module Program
    DIRECTORY = File.join(__dir__, "programs")
    LIBRARIES = { "wait.c" => %w[-ldl] }.freeze

    module_function

    # @return [Peer::Run] ready
    def start(file, messages, *arguments)
      Peer::Run.new(file, [*command(file), *arguments].map(&:to_s), messages, 300)
    end

    def command(file)
      source = File.join(DIRECTORY, file)
      return [RbConfig.ruby, "-I", File.join(ROOT, "lib"), source] if file.end_with?(".rb")
      return [File.join(Peers.directory("confluent-kafka"), "bin/python"), source] if file.end_with?(".py")

      [Bench.compile(source, *LIBRARIES.fetch(file, []))]
    end
  end
end
