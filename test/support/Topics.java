import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * Makes topics on the Kafka given as its argument. It says "ready" on stdout, and then for each line "NAME PARTITIONS" on
 * stdin "NAME ok", or "NAME" and what went wrong. "ok" means that the brokers name a leader for each partition. At the
 * end of stdin it deletes what it has made, and ends.
 */
class Topics {
    public static void main(String[] servers) throws Exception {
        List<String> made = new ArrayList<>();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers[0]))) {
            System.out.println("ready");
            for (String line; (line = requests.readLine()) != null; ) {
                String[] request = line.split(" ");
                String answer = "ok";
                try {
                    create(admin, request[0], Integer.parseInt(request[1]));
                    made.add(request[0]);
                } catch (ExecutionException e) {
                    answer = e.getCause().toString().replaceAll("\\s+", " ");
                }
                System.out.println(request[0] + " " + answer);
            }
            for (var deleted : admin.deleteTopics(made).topicNameValues().values())
                try {
                    deleted.get();
                } catch (ExecutionException e) {
                    // A test has deleted it, or the Kafka is gone.
                }
        }
    }

    static void create(Admin admin, String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, Optional.of(partitions), Optional.empty()))).all().get();
        while (!known(admin, name, partitions)) Thread.sleep(2);
    }

    static boolean known(Admin admin, String name, int partitions) throws Exception {
        try {
            var there = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions();
            return there.size() == partitions && there.stream().allMatch(one -> one.leader() != null);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof UnknownTopicOrPartitionException) return false;
            throw e;
        }
    }
}
