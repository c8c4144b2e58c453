# frozen_string_literal: true

module Penstock
  # How a consumer was closed.
  #
  # - `in_time`: true when everything was done in the time: offsets committed that librdkafka had to commit, the group left, all
  #   freed. false: the time was up, and closing goes on by itself.
  # - `left_group`: true when the consumer had subscribed, and has told the group's coordinator in time that it leaves, if that
  #   could be reached. false: it had subscribed, and the time was up; the group may have to notice by itself
  #   (`session.timeout.ms`). nil: it was in no group.
  ConsumerCloseReport = Struct.new(:in_time, :left_group) do
    include AsJson

    # @return [Boolean] whether nothing goes on
    def complete? = in_time

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(**to_h)
  end
end
